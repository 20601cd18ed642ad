"""What crashes leave behind, found and mended: `examine_machine`, `examine_session` and `configuration_findings` look.

Looking changes nothing. `mend` applies the remedies of what was found; none of them loses anything that was recorded.
"""

from coterie.orchestrator.doctor.configuration import configuration_findings
from coterie.orchestrator.doctor.examination import Mended, examine_machine, examine_session, mend
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.doctor.processes import Stray, end_stray, end_strays, find_strays
from coterie.orchestrator.doctor.standing import end_on_record

__all__ = [
    "Finding",
    "Mended",
    "NotMended",
    "Remedy",
    "Stray",
    "configuration_findings",
    "end_on_record",
    "end_stray",
    "end_strays",
    "examine_machine",
    "examine_session",
    "find_strays",
    "mend",
]
