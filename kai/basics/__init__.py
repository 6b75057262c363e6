"""What all of kai uses and what uses nothing of kai: words of messages, values out of text, trees, deadlines."""
