"""How well each driver is tested, as ``vgrads sites check`` and ``docs/drivers.md`` show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Grade = Literal["bronze", "silver", "gold"]
GRADES: Mapping[Grade, str] = MappingProxyType(
    {
        "bronze": "a stand-in that was written after the manual",
        "silver": "a server that others wrote, or texts that real versions printed",
        "gold": "a real service in each check, whose managers are killed",
    }
)
"""What a driver of each grade is tested against; one of a higher grade also against the others."""


@dataclass(frozen=True, slots=True)
class DriverQuality:
    """The grade of a driver, and what it is tested against."""

    grade: Grade
    against: str

    def __str__(self) -> str:
        return f"{self.grade}: tested against {self.against}"


QUALITY: Mapping[str, DriverQuality] = MappingProxyType(
    {
        "local": DriverQuality("gold", "processes of the machine"),
        "slurm": DriverQuality("gold", "Slurm 22.05 with its database, here and over SSH"),
        "gridengine": DriverQuality("gold", "Son of Grid Engine 8.1.9"),
        "dask": DriverQuality("gold", "a scheduler and workers of distributed"),
        "ec2": DriverQuality("silver", "moto behind a front end that boots late and refuses"),
        "eucalyptus": DriverQuality("silver", "the same, with its path, sizes and signature 2"),
        "pbs": DriverQuality("bronze", "stand-ins for OpenPBS and Torque"),
    }
)
"""By driver; ``simulated`` has none: it is no way to a site."""
