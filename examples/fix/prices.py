def discount(price: float, percent: float) -> float:
    """The price after a discount of so many percent."""
    return price - price * percent / 10
