"""What objects say in annotations and in the text of a status, and rules that two services must read alike."""
