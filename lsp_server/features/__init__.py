"""The handlers of an editor's messages: each reads its parameters, calls the component, and answers in LSP's types."""
