"""The callback in config.yaml: every chat call through the proxy is shown this playbook and becomes a trace."""

from combee.integrations.litellm import CombeeLogger

learning = CombeeLogger("support/refunds")  # the address comes from COMBEE_GATEWAY_URL
