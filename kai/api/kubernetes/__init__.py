"""Classes of the kinds that Kubernetes and its add-ons define, with the fields that kai reads."""
