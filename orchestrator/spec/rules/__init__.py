"""Rules between the fields of a job file: what no plan of the engine can do, refused at submit with every reason.

A file a subject. A rule is a generator over the sections it names, and reads no others: rules run on the sections that
are valid by themselves even when others are not, so that one submission reports all. `registry` lists them.
"""

from orchestrator.spec.rules.registry import MAX_RANKS, NO_USER_CODE, RULES, Rule, incompatibilities

__all__ = ["MAX_RANKS", "NO_USER_CODE", "RULES", "Rule", "incompatibilities"]
