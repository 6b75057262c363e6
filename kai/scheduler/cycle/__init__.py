"""One cycle. Begin with `cycling`; `cycle_input` is its input, and `stream` carries decisions out."""
