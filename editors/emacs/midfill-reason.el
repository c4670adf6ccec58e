;;; midfill-reason.el --- Why midfill suggests nothing  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; The mode line names what keeps suggestions away while that lasts, `midfill-explain' says it in full, in the server's
;; words, and what the user waits for comes by itself once that has ended.

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

(defun midfill-explain ()
  "Say why nothing is suggested here."
  (interactive)
  (cond ((not midfill-mode) (user-error "`midfill-mode' is off in this buffer"))
        ((not midfill--open) (user-error "midfill: %s" (or (plist-get midfill--core-reason :explanation) "no document")))
        (t (midfill--request
            :midfill/lastReason (list :textDocument (midfill--document))
            (lambda (reason)
              (message "midfill: %s" (or (plist-get reason :explanation) "nothing keeps suggestions away here")))))))

(provide 'midfill-reason)
;;; midfill-reason.el ends here
