"""The HTTP server: a FastAPI application over `omnigraph.Graph`.

A request passes `middleware` (id, size, log, metrics, last resort), `auth` (who asks, and may they), one function in
`routes/`, the graph on a worker thread, and comes back as JSON or Arrow; every error leaves through `errors`.
"""
