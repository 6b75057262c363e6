"""The wire: attrs classes for the JSON that kai reads and writes.

`kai.api.wire` is the vocabulary of the classes, `kai.api.pod`, `node`, `queue`, `podgroup` and so on are the classes,
`kai.api.kinds` is the table of them, `kai.api.codec` turns manifests into objects and back, `kai.api.documents` text
into manifests, `kai.api.objects` gathers what a snapshot is made of. Names of labels and annotations are in
`kai.api.names`. Import from these modules; the package itself stays empty so that a command which needs one constant
does not pay for a hundred classes.
"""
