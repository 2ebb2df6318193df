"""model_names: what models are called in short; light, for the fast commands."""

ALIASES = {
    "pro": "gemini-2.5-pro",
    "flash": "gemini-3.8-flash",
    "flash-lite": "gemini-3.5-flash-lite",
    "image": "gemini-2.5-flash-image",
}
"""Defaults of `model.aliases`. `auto` is not here: it means routed, per prompt."""
GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
GEMINI_URL = "https://generativelanguage.googleapis.com"
