import unittest

from prices import discount


class Prices(unittest.TestCase):
    def test_a_quarter_off(self) -> None:
        self.assertEqual(discount(80, 25), 60)

    def test_nothing_off(self) -> None:
        self.assertEqual(discount(80, 0), 80)
