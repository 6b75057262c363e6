"""The report on runs over virtual time: ``kai simulate --report``. Start reading at ``kai.lab.report.page``."""
