"""A workflow of Toil, one job for each square and one for their sum: ``python toil_sum.py STORE
--count N OPTIONS``; with ``--sleep S``, each square takes S seconds. Prints ``RESULT SUM``."""

import time

from toil.common import Toil
from toil.job import Job


def square(job, number, sleep_s):
    time.sleep(sleep_s)
    return number * number


def total(job, numbers):
    return sum(numbers)


def begin(job, count, sleep_s):
    squares = [
        job.addChildJobFn(square, number, sleep_s, cores=1, memory="100M", disk="10M")
        for number in range(count)
    ]
    values = [child.rv() for child in squares]
    return job.addFollowOnJobFn(total, values, cores=1, memory="100M", disk="10M").rv()


def main():
    parser = Job.Runner.getDefaultArgumentParser()
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--sleep", type=float, default=0.0)
    options = parser.parse_args()
    with Toil(options) as toil:
        arguments = (options.count, options.sleep)
        root = Job.wrapJobFn(begin, *arguments, cores=1, memory="100M", disk="10M")
        print("RESULT", toil.start(root))


if __name__ == "__main__":
    main()
