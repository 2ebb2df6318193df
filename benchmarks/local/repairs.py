"""repairs: ten small repositories, each with one bug and a test that fails because of it."""

from typing import NamedTuple


class Repair(NamedTuple):
    name: str
    file: str
    bug: str
    test: str

    @property
    def prompt(self) -> str:
        return f"`python3 -m unittest` fails. Find the bug in {self.file} and fix it. Don't change the test."


_TEST = """import unittest

from {module} import *


class Test(unittest.TestCase):
    def test_it(self):
{body}
"""


def _repair(name: str, file: str, bug: str, asserts: str) -> Repair:
    module = file.removesuffix(".py")
    body = "\n".join(f"        {line}" for line in asserts.strip().splitlines())
    test = _TEST.format(module=module, body=body)
    return Repair(name, file, bug.lstrip(), test)


REPAIRS = (
    _repair(
        "a percentage",
        "prices.py",
        '''
def discount(price, percent):
    """The price after a discount of so many percent."""
    return price - price * percent / 10
''',
        """
self.assertEqual(discount(80, 25), 60)
self.assertEqual(discount(50, 0), 50)
""",
    ),
    _repair(
        "one page too few",
        "pages.py",
        '''
def page_count(items, per_page):
    """How many pages the items fill; the last one may be partly filled."""
    return items // per_page
''',
        """
self.assertEqual(page_count(10, 5), 2)
self.assertEqual(page_count(11, 5), 3)
self.assertEqual(page_count(0, 5), 0)
""",
    ),
    _repair(
        "a missing return",
        "names.py",
        '''
def full_name(first, last):
    """First and last name with a space between them."""
    name = f"{first} {last}"
    name.strip()
''',
        """
self.assertEqual(full_name('Ada', 'Lovelace'), 'Ada Lovelace')
self.assertEqual(full_name('Ada', ''), 'Ada')
""",
    ),
    _repair(
        "a shared default",
        "basket.py",
        '''
def add(item, basket=[]):
    """A basket with the item in it; a new basket where none is given."""
    basket.append(item)
    return basket
''',
        """
self.assertEqual(add('apple'), ['apple'])
self.assertEqual(add('pear'), ['pear'])
self.assertEqual(add('fig', ['nut']), ['nut', 'fig'])
""",
    ),
    _repair(
        "a wrong bound",
        "ages.py",
        '''
def may_vote(age):
    """Whether somebody of this age may vote, which begins at 18."""
    return age > 18
''',
        """
self.assertTrue(may_vote(18))
self.assertTrue(may_vote(40))
self.assertFalse(may_vote(17))
""",
    ),
    _repair(
        "a missing import",
        "circle.py",
        '''
def area(radius):
    """The area of a circle."""
    return math.pi * radius ** 2


def diameter(radius):
    """The diameter of a circle."""
    return 2 * radius
''',
        """
self.assertAlmostEqual(area(2), 12.566, places=3)
self.assertEqual(diameter(2), 4)
""",
    ),
    _repair(
        "an empty list",
        "stats.py",
        '''
def mean(numbers):
    """The mean of the numbers, or 0 where there are none."""
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)
''',
        """
self.assertEqual(mean([1, 2, 3]), 2)
self.assertEqual(mean([]), 0)
""",
    ),
    _repair(
        "the wrong order",
        "scores.py",
        '''
def best(scores, count):
    """The names with the highest scores, the best one first."""
    names = sorted(scores, key=lambda name: scores[name])
    return names[:count]
''',
        """
scores = {'ann': 3, 'bob': 9, 'cem': 5}
self.assertEqual(best(scores, 2), ['bob', 'cem'])
""",
    ),
    _repair(
        "a mistyped key",
        "config.py",
        '''
DEFAULTS = {"host": "localhost", "port": 8080}


def address(settings):
    """host:port, out of the settings or else the defaults."""
    merged = {**DEFAULTS, **settings}
    return f"{merged['host']}:{merged['prot']}"
''',
        """
self.assertEqual(address({}), 'localhost:8080')
self.assertEqual(address({'port': 1}), 'localhost:1')
""",
    ),
    _repair(
        "upper case counts",
        "words.py",
        '''
def count_words(text):
    """How often each word occurs, upper and lower case alike."""
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts
''',
        """
self.assertEqual(count_words('The cat the dog'), {'the': 2, 'cat': 1, 'dog': 1})
self.assertEqual(count_words(''), {})
""",
    ),
)
