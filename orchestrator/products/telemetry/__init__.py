"""OpenTelemetry: the spans and metrics of runs, made from their facts, live or later."""
