;;; midfill-reason.el --- Why midfill suggests nothing  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; The mode line names what keeps suggestions away while that lasts, `midfill-explain' says it in full, in the server's
;; words, with what helps, and what the user waits for comes by itself once that has ended.  `midfill-snooze' has it quiet.

;;; Code:

(require 'midfill)

(defun midfill-reason--lighter ()
  "The name of the mode, with the reason why nothing is suggested while that lasts."
  (let ((reason (or (and midfill--open midfill--reason) midfill--core-reason)))
    (if (and reason
             (or (not (eq (plist-get reason :lasts) :json-false)) ; it concerns not only the last request
                 (equal (plist-get reason :kind) "unloaded")))
        (concat " midfill:" (string-replace "%" "%%" (plist-get reason :text))) ; the mode line's own sign
      " midfill")))

(defun midfill-reason--told (reason)
  "Keep the document's REASON, and remove the suggestion that it withdraws."
  (setq midfill--reason reason)
  (when (member (plist-get reason :kind) '("off" "snoozed" "excluded")) (midfill--clear))
  (force-mode-line-update))

(defun midfill-reason--ended (invoked)
  "Ask again, as for the user if INVOKED, where the user is in this document: what kept the last answer away has ended."
  (when (eq (current-buffer) (window-buffer))
    (cond (invoked (midfill--ask 1))
          ((midfill--automatic-p) (midfill--ask 2)))))

(defun midfill-reason--check-open ()
  "Signal why this buffer has no document at the server, if it has none."
  (cond ((not midfill-mode) (user-error "`midfill-mode' is off in this buffer"))
        ((not midfill--open) (user-error "midfill: %s" (or (plist-get midfill--core-reason :explanation) "no document")))))

(defun midfill-reason--run (command arguments done)
  "Run COMMAND of the server with ARGUMENTS, and say that it is DONE, or what is wrong."
  (jsonrpc-async-request midfill--connection :workspace/executeCommand (list :command command :arguments arguments)
                         :timeout nil
                         :success-fn (lambda (_) (message "midfill: %s" done))
                         :error-fn (lambda (failure) (message "midfill: %s" (plist-get failure :message)))))

(defun midfill-reason--say (reason)
  "Say REASON in full."
  (message "midfill: %s" (or (plist-get reason :explanation) "nothing keeps suggestions away here")))

(defun midfill-reason--offer (reason)
  "Let the user choose one of the actions of REASON; an empty answer is none."
  (let* ((actions (plist-get reason :actions))
         (titles (mapcar (lambda (action) (plist-get action :title)) actions))
         (details (delq nil (mapcar (lambda (action) (plist-get action :detail)) actions)))
         (said (string-join (cons (plist-get reason :explanation) details) "\n"))
         (title (completing-read (format "midfill: %s\nDo (Tab lists): " said) titles nil t)))
    (when-let ((action (seq-find (lambda (each) (equal title (plist-get each :title))) actions)))
      (midfill-reason--run (plist-get action :command) (plist-get action :arguments) (concat "done: " title)))))

(defun midfill-explain (&optional offers)
  "Say why nothing is suggested here; with OFFERS, as for the user, let them choose what helps."
  (interactive '(t))
  (midfill-reason--check-open)
  (let ((document (list :textDocument (midfill--document))))
    (if (not offers)
        (midfill--request :midfill/lastReason document #'midfill-reason--say)
      (let ((reason (jsonrpc-request midfill--connection :midfill/lastReason document :timeout 3)))
        (funcall (if (seq-empty-p (plist-get reason :actions)) #'midfill-reason--say #'midfill-reason--offer) reason)))))

(defun midfill-snooze (minutes)
  "Have nothing suggested by itself for so many MINUTES; 0 is until the language server restarts."
  (interactive "NMinutes to snooze (0: until the language server restarts): ")
  (midfill-reason--check-open)
  (midfill-reason--run "midfill.snooze" (vector minutes) "suggestions are snoozed; M-x midfill-explain resumes them"))

(provide 'midfill-reason)
;;; midfill-reason.el ends here
