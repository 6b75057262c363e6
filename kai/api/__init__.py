"""The wire format: attrs classes for the JSON that kai reads and writes.

The classes are in `kai.api.kubernetes` and `kai.api.scheduling`, in the vocabulary of `kai.api.fields`. `kai.api.kinds`
is the table of them and gathers the objects of a snapshot. `kai.api.codec` parses text into objects and writes objects
as text; `kai.api.crds` writes the custom resource definitions. Names of labels and annotations are in `kai.api.names`,
their meaning in `kai.api.conventions`, and requests to an API server in `kai.api.plans`. Import from these modules: the
packages stay empty, so that a command which needs one constant does not import a hundred classes.
"""
