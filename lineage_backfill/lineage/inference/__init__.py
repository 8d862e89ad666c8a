"""Calendars that timetables and recorded runs show."""
