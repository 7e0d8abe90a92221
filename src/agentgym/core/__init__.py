"""The nouns and the training loop; imports no framework, web server or torch."""
