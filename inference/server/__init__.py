"""The core's process and its protocols: HTTP, WebSocket, access, connections and metrics."""
