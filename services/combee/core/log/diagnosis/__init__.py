"""Judgements of ``combee doctor``, each with a remedy if something is wrong."""

from combee.core.log.diagnosis.check import Check, Verdict, failed, skipped, unanswered

__all__ = ["Check", "Verdict", "failed", "skipped", "unanswered"]
