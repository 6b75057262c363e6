"""One cycle. Read `cycling` first; `cycle_input` holds its input, and `stream` carries its decisions out."""
