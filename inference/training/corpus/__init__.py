"""What a training reads: source files with their licences, duplicates left out, and the vocabulary."""
