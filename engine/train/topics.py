"""What the built-in questions are about: words to put into templates. Pure data."""

from __future__ import annotations

LANGUAGES = (
    "JavaScript", "TypeScript", "Go", "Rust", "Java", "C", "C++", "C#", "Ruby", "Bash", "Python",
    "Python", "PHP", "Kotlin",
)  # fmt: skip
TYPES = ("Python", "TypeScript", "Java", "Go", "Rust", "C++")

TASKS: tuple[tuple[str, str], ...] = (
    ("merge two sorted lists", "merges two sorted lists into one"),
    ("count words in a text", "counts how often each word occurs in a text"),
    ("parse a CSV file", "reads a CSV file and returns a list of records"),
    ("find duplicates", "finds all duplicate entries in a list"),
    ("flatten a nested list", "flattens an arbitrarily nested list"),
    ("validate an email address", "checks whether a string looks like an email address"),
    ("convert Roman numerals", "converts Roman numerals to integers"),
    ("compute Fibonacci numbers", "computes the n-th Fibonacci number without recursion"),
    ("balance brackets", "checks whether the brackets in a string are balanced"),
    ("group items by key", "groups a list of dictionaries by one of their keys"),
    ("compute a moving average", "computes the moving average of a list of numbers"),
    ("rotate a matrix", "rotates a square matrix by 90 degrees in place"),
    ("search in a sorted array", "finds a value in a sorted array by binary search"),
    ("download a file", "downloads a file over HTTP and retries three times on failure"),
    ("walk a directory tree", "lists all files below a folder with their sizes"),
    ("parse command line arguments", "parses command line arguments with defaults and help"),
    ("format a duration", "formats a number of seconds as hours, minutes and seconds"),
    ("compute the edit distance", "computes the edit distance between two strings"),
    ("generate a random password", "generates a random password of a given length"),
    ("compare two versions", "compares two version strings such as 1.10.2 and 1.9"),
    ("read a config file", "reads a configuration file and checks the required keys"),
    ("debounce a function", "delays calls until no new one came for a while"),
    ("retry with backoff", "retries a call with exponential backoff and jitter"),
    ("cache results", "caches the results of a slow function for sixty seconds"),
    ("find the shortest path", "finds the shortest path in a weighted graph"),
    ("topologically sort a graph", "sorts tasks by their dependencies and detects cycles"),
    ("compress a string", "compresses a string by run lengths, and expands it again"),
    ("convert temperatures", "converts between Celsius, Fahrenheit and Kelvin"),
    ("parse a log line", "parses lines of a web server's log into fields"),
    ("paginate results", "splits a list of results into pages and returns one of them"),
    ("check a credit card number", "checks a card number with the Luhn algorithm"),
    ("find anagrams", "groups words that are anagrams of each other"),
    ("chunk a list", "splits a list into chunks of a given size"),
    ("hash a file", "computes the SHA-256 of a large file without reading it at once"),
    ("schedule a job", "runs a job every five minutes until it is stopped"),
    ("limit a rate", "allows at most ten calls per second and makes others wait"),
    ("parse dates", "parses dates in several formats and returns them in ISO form"),
    ("compute statistics", "computes mean, median and standard deviation of a list"),
    ("draw a histogram", "prints a histogram of numbers as text"),
    ("solve a quadratic equation", "solves a quadratic equation, with complex roots too"),
    ("invert a dictionary", "inverts a dictionary whose values may repeat"),
    ("trim a text", "shortens a text to a width without cutting words"),
    ("multiply matrices", "multiplies two matrices and checks their sizes"),
    ("zip files", "packs a folder into a zip archive and reports progress"),
    ("watch a file", "notices when a file changes and calls a function"),
    ("send an email", "sends an email with an attachment"),
    ("count lines of code", "counts lines of code by file extension in a folder"),
    ("find prime factors", "returns the prime factors of an integer"),
    ("escape HTML", "escapes the special characters of HTML in a string"),
    ("slugify a title", "turns a title into a lowercase slug for a URL"),
)

THINGS = (
    "a bank account with a history of transactions", "a binary search tree",
    "a priority queue", "a bounded stack with undo", "a thread-safe counter",
    "a matrix with addition and multiplication", "a shopping cart with discounts",
    "a simple event emitter", "a connection pool", "a trie for autocompletion",
    "a graph with breadth-first and depth-first search", "a ring buffer",
    "a linked list with iteration", "a tokenizer for arithmetic expressions",
    "an in-memory key-value store with expiry", "a state machine for an order",
    "a rate limiter with a token bucket", "a simple dependency injection container",
    "a todo list that is saved to a file", "a deck of cards with shuffling and dealing",
    "a bloom filter", "an interval that can be merged with others", "a money amount",
    "a text adventure's rooms", "a vector in three dimensions", "a job queue with workers",
    "a chess board that checks knight moves", "a parking garage", "a library with loans",
    "a temperature sensor with alarms",
)  # fmt: skip

CONCEPTS = (
    "recursion", "dependency injection", "a hash table", "big O notation", "a deadlock",
    "garbage collection", "the difference between a process and a thread", "REST",
    "continuous integration", "unit tests and integration tests", "closures in JavaScript",
    "Python's decorators", "generators in Python", "async and await", "ownership in Rust",
    "pointers in C", "SQL joins", "database indexes", "transactions and isolation levels",
    "memoization", "immutable data", "the observer pattern", "the difference between git merge "
    "and rebase", "semantic versioning", "type inference", "a memory leak", "load balancing",
    "caching with expiry", "idempotent requests", "microservices", "code review", "technical debt",
    "a stack overflow", "floating point rounding", "Unicode and UTF-8", "OAuth", "cross-site "
    "scripting", "SQL injection", "environment variables", "containers and virtual machines",
    "message queues", "eventual consistency", "a mutex and a semaphore", "polymorphism",
    "composition over inheritance", "pure functions", "lazy evaluation", "Node.js's event loop",
    "virtual environments in Python", "logging levels",
)  # fmt: skip

RECORDS: tuple[tuple[str, str], ...] = (
    ("books", "title, author, year and isbn"),
    ("employees", "name, department, salary and hired_at"),
    ("orders", "id, customer, items and total"),
    ("cities", "name, country, population and mayor"),
    ("invoices", "number, due_date, amount and paid"),
    ("movies", "title, director, rating and genres"),
    ("servers", "hostname, ip, region and status"),
    ("bug reports", "title, severity, reporter and steps"),
    ("recipes", "name, ingredients, minutes and servings"),
    ("flights", "number, origin, destination and departs_at"),
    ("students", "name, grade, courses and advisor"),
    ("products", "sku, name, price and in_stock"),
    ("log entries", "timestamp, level, service and message"),
    ("appointments", "patient, doctor, starts_at and room"),
    ("songs", "title, artist, album and seconds"),
    ("tickets", "id, status, assignee and tags"),
    ("weather readings", "station, temperature, humidity and taken_at"),
    ("users", "username, email, roles and last_login"),
    ("vehicles", "plate, make, model and mileage"),
    ("tasks", "title, done, due and subtasks"),
)

TOOLS = (
    "a Dockerfile for a Python web application", "a Makefile for a small C project",
    "a GitHub Actions workflow that runs the tests", "a bash script that backs up a folder",
    "a regular expression that matches dates like 2024-05-31",
    "a docker-compose file with a web server and PostgreSQL", "an nginx configuration for a proxy",
    "a .gitignore for a Python and Node project", "a pyproject.toml for a small library",
    "a systemd unit for a background service", "a crontab line that runs every weekday at six",
    "a bash one-liner that finds the ten largest files", "an HTML page with a form and validation",
    "CSS for a responsive grid of cards", "a React component for a searchable list",
    "a React hook that fetches data and handles errors", "an Express server with two routes",
    "a pytest fixture for a temporary database", "a Kubernetes deployment for one container",
    "a commit message for a change that speeds up a query", "a README for a small CLI tool",
    "an argparse setup with two subcommands", "a logging setup for a Python application",
    "a SQL migration that adds and fills a column", "a Python script that renames photos by date",
    "a shell function that extracts any archive", "a jq command that lists names in a JSON file",
    "an awk command that sums the third column", "a package.json with scripts for build and test",
    "a Python context manager that measures time", "a type-safe event bus in TypeScript",
    "a Go program that reads lines from standard input and counts them",
)  # fmt: skip

SNIPPETS = (
    """\
def average(numbers):
    total = 0
    for n in numbers:
        total += n
    return total / len(numbers)
""",
    """\
def find_user(users, id):
    for i in range(len(users)):
        if users[i]["id"] == id:
            return users[i]
    return None
""",
    """\
class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop(0)

    def size(self):
        return len(self.items)
""",
    """\
import json

def load_settings(path):
    file = open(path)
    data = json.load(file)
    settings = {}
    for key in data:
        settings[key.lower()] = data[key]
    return settings
""",
    """\
def is_palindrome(s):
    s = s.replace(" ", "").lower()
    for i in range(len(s)):
        if s[i] != s[len(s) - i]:
            return False
    return True
""",
    """\
def process(orders):
    result = []
    for o in orders:
        if o["status"] == "open":
            if o["total"] > 100:
                result.append({"id": o["id"], "total": o["total"] * 0.9})
            else:
                result.append({"id": o["id"], "total": o["total"]})
    return result
""",
    """\
def primes(limit):
    found = []
    for n in range(2, limit):
        prime = True
        for d in range(2, n):
            if n % d == 0:
                prime = False
        if prime:
            found.append(n)
    return found
""",
    """\
import threading

counter = 0

def work():
    global counter
    for _ in range(100000):
        counter += 1

threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(counter)
""",
    """\
def parse_line(line):
    parts = line.split(",")
    name = parts[0].strip()
    age = int(parts[1])
    city = parts[2].strip() if len(parts) > 2 else ""
    return {"name": name, "age": age, "city": city}
""",
    """\
class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def withdraw(self, amount):
        self.balance -= amount
        return self.balance

    def transfer(self, other, amount):
        self.withdraw(amount)
        other.balance += amount
""",
    """\
def add_item(item, items=[]):
    items.append(item)
    return items
""",
    """\
import requests

def get_names(url):
    response = requests.get(url)
    names = []
    for user in response.json()["users"]:
        names.append(user["first"] + " " + user["last"])
    return sorted(names)
""",
)
