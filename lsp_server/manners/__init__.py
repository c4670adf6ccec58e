"""What is shown of the core's text: small pure filters, one per file, in the order that `order` puts them in."""
