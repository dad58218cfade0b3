"""The names of evaluation that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.evaluation.sets import SetsQuestion, answer_question
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__, {"orchestrator.products.evaluation.sets": "SetsQuestion answer_question"}
    )
