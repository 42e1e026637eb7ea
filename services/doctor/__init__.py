from services.doctor.examination import Doctor
from services.doctor.finding import Finding

__all__ = ["Doctor", "Finding"]
