lock:
	cd requirements && sh lock.sh
