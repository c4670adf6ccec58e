"""What the language server and the core say to each other: values, settings and meeting place, free of torch and pygls."""
