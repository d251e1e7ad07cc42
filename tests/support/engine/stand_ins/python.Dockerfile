# For tests only, where python:3.11-slim cannot be pulled: Debian's own Python 3.11.
FROM combee-test-python:bare
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN ln -s python3 /usr/bin/python
CMD ["python"]
