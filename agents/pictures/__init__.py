"""Pictures of agents and pipelines before they run: SVG and Mermaid."""
