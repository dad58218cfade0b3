"""`orchestrator draw`: draw an agent or a pipeline before it runs."""

import sys
from typing import Literal

from orchestrator.cli.agent_file import load_agent_to_look_at
from orchestrator.cli.options import AnyAgentFile, ModelOption, OutputOption, write_file


def draw(
    file: AnyAgentFile,
    /,
    *,
    format: Literal["svg", "mermaid"] | None = None,  # noqa: A002 (the option's name)
    output: OutputOption = None,
    model: ModelOption = None,
) -> None:
    """Draw an agent or a pipeline before it runs.

    No model is called, and no server is started. The picture shows models, tools, limits, the types
    that agents pass on, and the agents that they may delegate to.

    Args:
        format: svg: a picture for browsers and documents. mermaid: text for Markdown. By default
            the format of the output's name; mermaid on stdout.
        output: The file; by default stdout. An existing file is replaced.
    """
    agent = load_agent_to_look_at(file, model=model)
    is_svg = output is not None and output.suffix.lower() == ".svg"
    chosen = format or ("svg" if is_svg else "mermaid")
    picture = agent.to_svg() if chosen == "svg" else agent.to_mermaid()
    if output is None:
        print(picture)
        return
    write_file(output, f"{picture}\n")
    print(f"{agent.name}: {len(picture.encode()) / 1000:,.1f} kB: {output}", file=sys.stderr)
