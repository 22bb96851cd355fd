"""(stand-in)"""

from fedtopics.engines.log import Log


class DiskLog(Log):
    def __init__(self, folder, origin, sync=False):
        super().__init__(origin)
