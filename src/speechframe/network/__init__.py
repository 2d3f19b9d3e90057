"""Recognition of public addresses, and limits on the connections and open files of a process."""
