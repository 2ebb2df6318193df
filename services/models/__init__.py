"""models: chat models by role, alias or name. A provider's package is loaded on its first request."""
