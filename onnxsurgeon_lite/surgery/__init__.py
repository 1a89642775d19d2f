"""What the edit verbs share: order, names and declared types kept whole."""
