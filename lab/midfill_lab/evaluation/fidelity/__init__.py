"""Whether what the model writes reaches the document unharmed: an author's own text is played as the model's."""
