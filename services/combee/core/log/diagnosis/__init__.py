"""What ``combee doctor`` makes of what it finds: judgements, each with a remedy where something is wrong."""

from combee.core.log.diagnosis.check import Check, Verdict, failed, skipped, unanswered

__all__ = ["Check", "Verdict", "failed", "skipped", "unanswered"]
