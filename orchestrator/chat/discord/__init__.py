"""Discord: a bot that hears over the gateway's websocket, and speaks over HTTP (API version 10)."""
