"""What a user asks for, and every reason why it cannot be had."""

from orchestrator.spec.job import JobSpec
from orchestrator.spec.parse import parse_spec, read_spec
from orchestrator.spec.violations import InvalidSpecError, Violation

__all__ = ["InvalidSpecError", "JobSpec", "Violation", "parse_spec", "read_spec"]
