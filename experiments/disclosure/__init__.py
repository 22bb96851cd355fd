"""What releases over time cost under the rule of `fedtopics.federation.memory`."""
