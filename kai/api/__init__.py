"""The wire: attrs classes for the JSON that kai reads and writes.

The classes are in `kai.api.kubernetes` and `kai.api.scheduling`, in the vocabulary of `kai.api.fields`; `kai.api.kinds`
is the table of them, and `kai.api.kinds` gathers what a snapshot is made of. `kai.api.codec` makes objects of
text and text of objects, `kai.api.crds` the definitions. Names of labels and annotations are in `kai.api.names`, what
they mean in `kai.api.conventions`, and requests to an API server in `kai.api.plans`. Import from these modules; the
packages stay empty so that a command which needs one constant does not pay for a hundred classes.
"""
