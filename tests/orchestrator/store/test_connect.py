"""Errors of PostgreSQL: which of them are retried, and their messages."""

import pytest
import sqlalchemy as sa
from psycopg import errors

from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store.connect import translate_errors

URL = "postgresql://u@db/x"
IDLE = errors.IdleInTransactionSessionTimeout("due to idle-in-transaction timeout")


def translated(error: Exception) -> StoreError:
    with pytest.raises(StoreError) as caught, translate_errors(URL):
        raise sa.exc.DBAPIError("UPDATE", {}, error)
    return caught.value


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.ReadOnlySqlTransaction("in a read-only transaction"), "Name the primary"),
        (IDLE, "idle_in_transaction_session_timeout"),
        (errors.QueryCanceled("canceling statement due to statement timeout"), "statement_timeout"),
        (errors.AdminShutdown("terminating connection due to administrator command"), ""),
    ],
)
def test_transient_error_is_retried_and_names_a_remedy(error: Exception, remedy: str) -> None:
    translation = translated(error)
    assert translation.is_transient
    assert remedy in str(translation)
    assert "folder" not in str(translation)


@pytest.mark.parametrize(
    "error", [errors.InsufficientPrivilege("permission denied"), errors.UndefinedTable("no relation")]
)
def test_permanent_error_is_not_retried(error: Exception) -> None:
    assert not translated(error).is_transient
