"""web: the page of `interlock serve`: runs, requests and live events in a browser, over HTTP on loopback."""
