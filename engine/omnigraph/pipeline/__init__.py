"""The Spark jobs, one module a job. pyspark is imported here alone, and only when a job runs."""
