"""Say why a database lets nobody in by the certificate of a role.

Whether a certificate is accepted is the server's to say: it has its own clock, its own authorities and its own map of
users. So a connection is tried with any pair that can be used, and only a failed one is explained by the certificate.
"""

import re
from datetime import datetime

from memory_operator.api.reasons import Reason
from memory_operator.reconcile.facts import Credentials, Problem, RoleCertificate

FIELD = "spec.database.credentials.clientCertificate"
_UNUSABLE_LOGINS = {Reason.AUTHENTICATION_FAILED, Reason.DATABASE_UNREACHABLE}
_PLAIN = re.compile(r"[A-Za-z_][-A-Za-z0-9_]{0,62}")
_RENEW = (
    "Issue it anew, as `kubectl cnpg certificate` does, and store it in that Secret; it is read at the next "
    "connection, without a restart."
)
_OF_THE_ROLE = (
    "Issue a certificate whose common name is the role of the connection URI, as `kubectl cnpg certificate` does with "
    f"--cnpg-user, or correct {FIELD}."
)


def explained(problem: Problem, credentials: Credentials, now: datetime) -> Problem:
    """Return why no connection was made, with what is wrong with the certificate that was shown, if there was one."""
    shown = credentials.certificate
    if shown is None or problem.reason not in _UNUSABLE_LOGINS:
        return problem
    wrong = _at_wrong_time(shown, now)
    if wrong:
        return Problem(Reason.CERTIFICATE_INVALID, wrong, _RENEW)
    if problem.reason is Reason.DATABASE_UNREACHABLE:
        return problem
    where = f"The certificate of Secret {shown.location}"
    if shown.user != credentials.role:
        user = f"user {shown.user}" if _PLAIN.fullmatch(shown.user) else "another user"
        message = f"{problem.message} {where} is of {user}, which is not the role of the connection URI."
        return Problem(problem.reason, message, _OF_THE_ROLE)
    return Problem(problem.reason, f"{problem.message} {where} was shown.", problem.remedy)


def _at_wrong_time(shown: RoleCertificate, now: datetime) -> str:
    """Return a sentence about a certificate that is not valid now; empty if it is."""
    where = f"The certificate of Secret {shown.location}"
    if now >= shown.not_after:
        return f"{where} has expired on {shown.not_after:%Y-%m-%d at %H:%M} UTC."
    if now < shown.not_before:
        return f"{where} is valid only from {shown.not_before:%Y-%m-%d at %H:%M} UTC."
    return ""
