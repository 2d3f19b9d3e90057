"""The house's limits: what a run, and a key in a month, may spend."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speechframe.errors import SettingsError
from speechframe.settings import (
    FILE_NAME,
    Settings,
    configured,
    default_ledger_folder,
    read,
    read_file,
)
from speechframe.settings.budgets import FILE_NAME as BUDGETS_FILE
from speechframe.settings.budgets import BudgetRule, read_budgets
from speechframe.settings.typed import SPENDING_LIMITS, credit_limit, typed


@dataclass(frozen=True)
class SpendingRules:
    """What runs may spend by the house's rules; made by :func:`spending_rules`.

    Attributes
    ----------
    max_credits_per_run, max_credits_per_month
        Credits; None for no limit.
    run_rule_from, month_rule_from
        Where the rule was set, in words.
    budgets
        Those of the file of budgets.
    require_tags
        Names of tags that every run must have.
    ledger
        Folder into which every run puts its attempts, or its address.
    """

    max_credits_per_run: float | None
    run_rule_from: str
    max_credits_per_month: float | None
    month_rule_from: str
    ledger: Path | str
    budgets: tuple[BudgetRule, ...] = ()
    require_tags: tuple[str, ...] = ()

    def check_tags(self, tags: Iterable[str]) -> None:
        """Raise SettingsError for a run without a tag that the house requires."""
        if missing := [name for name in self.require_tags if name not in {*tags}]:
            raise SettingsError(
                f"this run has no tag {' and no tag '.join(missing)}, which require_tags asks for; nothing "
                f'was sent. Give tags={{"{missing[0]}": ...}}'
            )

    def over_runs(self, service: str, key_fingerprint: str) -> list[BudgetRule]:
        """Return the budgets over many runs that hold for a key of a service."""
        if self.max_credits_per_month is None:
            return [*self.budgets]
        name, account = "max_credits_per_month", (service, key_fingerprint)
        month = BudgetRule(name, self.max_credits_per_month, account=account, told_by=self.month_rule_from)
        return [month, *self.budgets]

    def of_run(self, max_credits: float | None) -> float | None:
        """Return the credits a run may spend that asks for `max_credits`.

        Raises
        ------
        SettingsError
            When it asks for more than the house allows a run.

        Examples
        --------
        >>> rules = SpendingRules(500.0, "configure()", None, "", Path("ledger"))
        >>> rules.of_run(None), rules.of_run(20)
        (500.0, 20)
        """
        most = self.max_credits_per_run
        if most is None or max_credits is None:
            return most if max_credits is None else max_credits
        if max_credits > most:
            raise SettingsError(
                f"max_credits={max_credits:.15g}, but no run may be given more than "
                f"max_credits_per_run={most:.15g} (set in {self.run_rule_from}); nothing was sent. "
                "Ask for less, or have the rule changed there."
            )
        return max_credits


def spending_rules(service: Settings) -> SpendingRules:
    """Return the limits that hold for runs on `service`.

    They hold for a service that is handed in too, and for the embedded local
    one: what it does not say itself comes from :func:`configure`, the
    environment and ``speechframe.toml``.

    Parameters
    ----------
    service
        Where the calls go.

    Raises
    ------
    SettingsError
        For a file that cannot be read, or a limit that is no number of credits.
    """
    profile = service.profile or configured("profile") or os.environ.get("SPEECHFRAME_PROFILE")
    from_file, places = _limits_of_file(profile)

    def limit(name: str) -> tuple[float | None, str]:
        known = (("configure()", configured(name)), (places.get(name, ""), from_file.get(name)))
        said = getattr(service, name)
        if said is None:
            where, said = next(((w, v) for w, v in known if v is not None), ("", None))
        else:
            # Settings do not remember where they come from; what stands in one of these places does.
            where = next((w for w, v in known if v == said), "the settings given as service=")
        found = None if said is None else credit_limit(name, said)
        return (None if found == math.inf else found), where

    named = service.ledger or configured("ledger") or os.environ.get("SPEECHFRAME_LEDGER")
    ledger = named or from_file.get("ledger")
    run, run_from = limit("max_credits_per_run")
    month, month_from = limit("max_credits_per_month")
    folder = default_ledger_folder() if ledger is None else typed("ledger", ledger)
    here = Path(BUDGETS_FILE)
    file = service.budgets or configured("budgets") or from_file.get("budgets") or here
    tags = service.require_tags or configured("require_tags") or from_file.get("require_tags", ())
    return SpendingRules(
        run,
        run_from,
        month,
        month_from,
        folder,
        budgets=() if file is here and not here.exists() else read_budgets(typed("budgets", file)),
        require_tags=typed("require_tags", tags),
    )


def cache_rules(service: Settings) -> dict[str, Any]:
    """Return folder and limits of the answers that runs on `service` share, by the names `open_cache` has.

    What the service does not say itself comes from the settings in force, as with :func:`spending_rules`.

    Raises
    ------
    SettingsError
        For a file that cannot be read, or a setting that is not allowed.
    """
    in_force = read()

    def said(name: str) -> Any:
        own = getattr(service, name)
        # A limit that is the default anyway may not have been said at all.
        return getattr(in_force, name) if own in {None, getattr(Settings, name)} else own

    return {
        "folder": said("cache"),
        "max_gb": said("cache_max_gb"),
        "max_age_days": said("cache_max_age_days"),
    }


def _limits_of_file(profile: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the spending settings of the file, and where in it each stands."""
    content, profiles = read_file()
    # A profile that the file does not know is a name only, of a service that was handed in.
    own = profiles.get(profile, {}) if profile is not None else {}
    path = Path(FILE_NAME).resolve()
    places = {name: f"{path}, [profiles.{profile}]" if name in own else str(path) for name in SPENDING_LIMITS}
    return {**content, **own}, places
