"""What operators read. Begin with `signals`: metrics and the log are made of them."""
